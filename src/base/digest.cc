#include "base/digest.h"

#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <mutex>

#include "base/fork_hold.h"

namespace paceline {
namespace {

std::mutex openssl_mutex;
const HeldWhileForking<openssl_mutex> held_while_forking;

}  // namespace

Digest sha256(std::string_view text) {
  Digest digest;
  const std::lock_guard lock(openssl_mutex);
  ::SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

Digest hmac_sha256(std::string_view secret, std::span<const std::byte> text) {
  Digest digest;
  unsigned int size = 0;
  const std::lock_guard lock(openssl_mutex);
  ::HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(digest.data()), &size);
  return digest;
}

}  // namespace paceline
