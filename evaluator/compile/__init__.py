"""From sources to a loadable library: one builder for each device, in the sandbox."""
