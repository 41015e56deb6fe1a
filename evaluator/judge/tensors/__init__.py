"""Trees of tensors: pytrees, call arguments, output views, memory overlap, number formats of few bits."""
