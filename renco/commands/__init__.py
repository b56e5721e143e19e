"""The commands of `renco`, one file each; heavy imports wait until a command runs."""
