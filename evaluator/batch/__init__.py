"""Grade many submissions: read them in, share them out among workers, keep what comes back, go on after a crash."""
