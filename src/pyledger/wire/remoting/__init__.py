"""The remoting protocol: frames, headers, JSON bodies, signatures."""
