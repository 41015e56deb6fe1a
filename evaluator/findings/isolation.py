"""I: findings about the isolation of a submission."""

from evaluator.findings.codes import Code, Entry

ENTRIES: dict[Code, Entry] = {
    Code.NO_SANDBOX: Entry(
        "no sandbox",
        "The submission ran without isolation (--sandbox none): it could have read or changed anything the user can.",
        "Use this for your own code only; leave --sandbox out for a grade that others may trust.",
    ),
    Code.WALL_MISSING: Entry(
        "a wall could not be built",
        "This machine does not allow one of the sandbox's layers; the card names it.",
        "`warpgrade doctor` says what is missing and how to get it.",
    ),
}
