"""Files of others and our own: opening without links, pipes or waiting; names; cards written whole."""
