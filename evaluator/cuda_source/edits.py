"""Token edits that preserve the line number of every remaining token."""

from collections.abc import Sequence

from evaluator.cuda_source.lexer import Code, Token


class Edits:
    """Pending insertions and replacements for a text's tokens. Indices refer to `code`."""

    def __init__(self, all_tokens: Sequence[Token], code: Code) -> None:
        """Start without edits."""
        self._tokens = all_tokens
        self._code = code
        self._replaced: dict[int, str] = {}
        self._before: dict[int, str] = {}
        self._after: dict[int, str] = {}

    def replace(self, token: Token, text: str) -> None:
        """Replace a token by `text`."""
        self._replaced[token.place] = text

    def blank(self, start: int, end: int) -> None:
        """Remove tokens of the code, keeping the whitespace between them for its newlines."""
        for token in self._code.tokens[start:end]:
            self.replace(token, "\n" * token.text.count("\n"))

    def insert_before(self, index: int, text: str) -> None:
        """Insert `text` before a token, behind earlier insertions."""
        position = self._code.tokens[index].place
        self._before[position] = self._before.get(position, "") + text

    def insert_after(self, index: int, text: str) -> None:
        """Insert `text` after a token, in front of earlier insertions."""
        position = self._code.tokens[index].place
        self._after[position] = text + self._after.get(position, "")

    def result(self) -> str:
        """Return the edited text."""
        return "".join(
            self._before.get(token.place, "")
            + self._replaced.get(token.place, token.text)
            + self._after.get(token.place, "")
            for token in self._tokens
        )
