"""`nedura` without arguments: a prompt with slash commands, streamed answers and a sign-in beside it."""
