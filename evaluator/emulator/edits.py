"""Changes to a text's tokens, which leave every token that stays on its line."""

from collections.abc import Sequence

from evaluator.emulator.lexer import Code, Token


class Edits:
    """What is to be inserted around the tokens of a text, and put in their place. Indices are those of `code`."""

    def __init__(self, all_tokens: Sequence[Token], code: Code) -> None:
        """Start with the text as it is."""
        self._tokens = all_tokens
        self._code = code
        self._replaced: dict[int, str] = {}
        self._before: dict[int, str] = {}
        self._after: dict[int, str] = {}

    def replace(self, token: Token, text: str) -> None:
        """Put `text` in the place of a token."""
        self._replaced[token.place] = text

    def blank(self, start: int, end: int) -> None:
        """Take tokens of the code out; the space between them stays, for the sake of its newlines."""
        for token in self._code.tokens[start:end]:
            self.replace(token, "\n" * token.text.count("\n"))

    def insert_before(self, index: int, text: str) -> None:
        """Insert `text` before a token, after what was inserted there already."""
        place = self._code.tokens[index].place
        self._before[place] = self._before.get(place, "") + text

    def insert_after(self, index: int, text: str) -> None:
        """Insert `text` after a token, before what was inserted there already."""
        place = self._code.tokens[index].place
        self._after[place] = text + self._after.get(place, "")

    def result(self) -> str:
        """Give the text with all changes."""
        return "".join(
            self._before.get(token.place, "")
            + self._replaced.get(token.place, token.text)
            + self._after.get(token.place, "")
            for token in self._tokens
        )
