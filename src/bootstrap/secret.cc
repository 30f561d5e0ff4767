#include "bootstrap/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/file_descriptor.h"
#include "bootstrap/socket.h"

namespace paceline {

Result<std::string> make_secret() {
  std::array<unsigned char, 32> random;
  // So few bytes come at once or not at all (getrandom(2)).
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return Status::system("getrandom", errno);
  std::string text;
  for (const unsigned char byte : random) text += fmt::format("{:02x}", byte);
  return text;
}

Result<std::string> given_secret(const Configuration& configuration) {
  if (!configuration.secret.empty()) return configuration.secret;
  const std::string& path = configuration.secret_file;
  if (path.empty()) return std::string();
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return descriptor_error("PACELINE_SECRET_FILE: cannot open " + path, errno);
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) return Status::system("PACELINE_SECRET_FILE: " + path, errno);
  if ((about.st_mode & 077) != 0)
    return Status(Code::invalid_usage, fmt::format("PACELINE_SECRET_FILE: others may read {0}: `chmod 600 {0}`", path));
  if (about.st_uid != ::geteuid() && about.st_uid != 0)
    return Status(Code::invalid_usage, fmt::format("PACELINE_SECRET_FILE: {} belongs to another user", path));
  std::array<char, 4096> text;
  const ssize_t length = ::read(file.get(), text.data(), text.size());
  if (length < 0) return Status::system("PACELINE_SECRET_FILE: cannot read " + path, errno);
  std::string secret(text.data(), static_cast<std::size_t>(length));
  secret.erase(secret.find_last_not_of(" \t\r\n") + 1);
  if (secret.empty()) return Status(Code::invalid_usage, fmt::format("PACELINE_SECRET_FILE: {} is empty", path));
  return secret;
}

}  // namespace paceline
