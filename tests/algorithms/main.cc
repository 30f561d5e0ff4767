// The tests of this folder by themselves, without the engines that the other tests need: `make prove`.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
