"""Arguments of the commands: light modules, of which the whole command line's help is made."""
