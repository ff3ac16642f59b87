// tests/plugins/no_symbol.cc: a library that is not a plugin.
extern "C" int fake_nothing() { return 0; }
