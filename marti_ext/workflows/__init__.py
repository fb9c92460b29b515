"""How agents work on a task: control flow only."""
