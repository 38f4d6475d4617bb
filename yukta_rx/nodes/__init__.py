"""The node types that ship with yukta_rx: one module per type, named like it in lower case."""
