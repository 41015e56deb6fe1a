"""From sources to a loadable library: flags, generated files, the compiler in its sandbox, and the cache."""
