"""Methods that change how tokens, nodes and pixels are mixed; one method, one file."""
