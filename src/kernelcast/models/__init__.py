"""Cost models: one interface, learned ones and ones that need no learning."""
