#include "bootstrap/interface.h"

#include <doctest/doctest.h>

using namespace paceline;

TEST_CASE("an interface is chosen by name, address or network") {
  CHECK(*interface_address("lo") == "127.0.0.1");
  CHECK(*interface_address("127.0.0.1") == "127.0.0.1");
  CHECK(*interface_address("127.0.0.0/8") == "127.0.0.1");
  CHECK(*interface_address("127.0.0.1/32") == "127.0.0.1");
}

TEST_CASE("a choice that fits nothing is refused, with what there is") {
  for (const char* wrong : {"nosuch0", "203.0.113.0/24", "127.0.0.0/33", "127.0.0.0/x", "127.0.0.0/", ""}) {
    const Status status = interface_address(wrong).status();
    CHECK_MESSAGE(status.code() == Code::invalid_usage, std::string(wrong));
    CHECK(status.message().find("127.0.0.1 (lo)") != std::string::npos);
  }
}
