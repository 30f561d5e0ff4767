// The shared library is the whole core (linked with --whole-archive); this file only gives the target a source.
