"""Where backends come from: each module turns one source into `BackendSpec`s. Nothing here reads engine state."""
