"""From measurements to a store of programs: selection, labels, building in shards, opening."""
