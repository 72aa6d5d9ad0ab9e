"""What every part of the library stands on: arrays, errors, the random stream, progress."""
