"""The syntax tree of a submission's Python files."""

import ast
from typing import NamedTuple

from evaluator.protocol.submission_files import SubmissionFile, is_several, python_files


class ParsedPython(NamedTuple):
    """The parsed Python files, and all statements as a module with lines of the submission's text.

    `invalid` are files that are not Python.
    """

    files: list[SubmissionFile]
    tree: ast.Module
    invalid: list[SubmissionFile] = []


def parsed_python(submission: str) -> ParsedPython:
    """Parse the Python files of a submission.

    Of several files, one may be invalid: perhaps no file imports it.

    Raises:
        SyntaxError, ValueError: the only file is not valid Python.
        RecursionError, MemoryError: a file nests too deeply.
    """
    if not is_several(submission):
        return ParsedPython(python_files(submission), ast.parse(submission))
    files: list[SubmissionFile] = []
    body: list[ast.stmt] = []
    invalid: list[SubmissionFile] = []
    for file in python_files(submission):
        try:
            tree = ast.parse(file.text)
        except (SyntaxError, ValueError):
            invalid.append(file)
            continue
        ast.increment_lineno(tree, file.lines_before)
        files.append(file)
        body += tree.body
    return ParsedPython(files, ast.Module(body, []), invalid)
