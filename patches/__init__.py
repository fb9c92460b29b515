"""What must change in an upstream package, one small module a purpose. No upstream file is copied."""
