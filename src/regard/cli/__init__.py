"""The command line: one thin file per command, loaded when it is asked for."""
