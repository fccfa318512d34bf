"""The command `quasirnn`: one file per subcommand, each thin. Computes nothing itself."""
