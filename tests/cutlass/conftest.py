"""Collection: submissions are no modules of tests."""

collect_ignore_glob = ["*_gemm.py", "collective/*"]
