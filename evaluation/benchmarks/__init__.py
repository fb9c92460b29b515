"""One small file a benchmark."""
