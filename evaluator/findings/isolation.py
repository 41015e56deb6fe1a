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
    Code.CACHE_UNUSABLE: Entry(
        "builds could not be kept",
        "The cache folder takes nothing: its disk is full, it may only be read, or it is no folder; the card says "
        "which. What was built was kept for the time of this process alone, so the next grade builds it again. The "
        "verdict is the same.",
        "Make room there (`warpgrade cache clear`), or set WARPGRADE_CACHE to a folder that can be written.",
    ),
}
