"""The shell: `svrhmc fit`, `predict`, `compare`, `plan`, `reproduce` and `warm`."""
