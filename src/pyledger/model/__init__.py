"""Values that every layer shares: messages, topics, groups, routes, codes. No I/O, no codec, no rule."""
