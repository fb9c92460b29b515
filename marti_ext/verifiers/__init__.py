"""Answers out of texts, and whether they are right."""
