"""I: findings about the isolation of a submission."""

from evaluator.findings.codes import Code, Entry, remark

ENTRIES: dict[Code, Entry] = {
    Code.NO_SANDBOX: remark(
        "the submission ran without a sandbox",
        "With --sandbox none the submission runs without isolation, and can read or change all of the user's files.",
        "Use --sandbox none for your own code only; omit it for a grade that others may trust.",
    ),
    Code.WALL_MISSING: remark(
        "a layer of the sandbox is missing",
        "This machine does not permit one of the sandbox's layers. The scorecard names the layer.",
        "Run `warpgrade doctor`: it names what is missing and how to get it.",
    ),
    Code.CACHE_UNUSABLE: remark(
        "the cache cannot store builds",
        "The cache folder is on a full disk, is read-only, or is not a folder; the scorecard names the cause. Builds "
        "lasted for this process only, so the next grade builds again. The verdict is unaffected.",
        "Free space there (`warpgrade cache clear`), or set WARPGRADE_CACHE to a writable folder.",
    ),
}
