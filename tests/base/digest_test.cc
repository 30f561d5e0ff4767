#include "base/digest.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "transport/child.h"

namespace paceline {
namespace {

std::string hexadecimal(const Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

Digest keyed(std::string_view secret, std::string_view text) {
  return hmac_sha256(secret, std::as_bytes(std::span(text)));
}

TEST_CASE("digests are the standards' own examples") {
  CHECK(hexadecimal(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hexadecimal(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hexadecimal(keyed("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");  // RFC 4231, test case 2
  CHECK(hexadecimal(keyed(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");  // test case 6
}

TEST_CASE("a child forked while another thread makes digests makes them, too") {
#ifdef __SANITIZE_ADDRESS__
  return;  // its allocator's own locks may be taken in the child for ever
#endif
  std::atomic<bool> ends = false;
  std::thread busy([&] {
    while (!ends.load()) keyed("secret", "text");
  });
  bool well = true;
  for (int i = 0; i < 200 && well; ++i) {
    Child child([] {
      ::alarm(5);
      keyed("secret", "text");
      return true;
    });
    well = child.ended_well();
  }
  ends = true;
  busy.join();
  CHECK(well);
}

}  // namespace
}  // namespace paceline
