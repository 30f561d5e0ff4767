// Where the real library is looked for, and what is taken for one.
#include "nccl/search.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bootstrap/ranks.h"
#include "nccl/real_library.h"

using namespace paceline::nccl;

namespace {

// A folder of its own, gone at the end.
struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("nccl-search-" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path / "second"); }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const {
    std::ofstream(path / name) << "no library";
    return (path / name).string();
  }
};

}  // namespace

TEST_CASE("files that are there are taken in their order, once, whatever link leads to them") {
  const Folder folder;
  const std::string there = folder.file("second/libnccl.so.2.30");
  std::filesystem::create_symlink(there, folder.path / "libnccl.so.2");
  const std::string other = folder.file("libnccl.so.2.28");
  const Found found = those_there({"/nowhere/libnccl.so.2", (folder.path / "libnccl.so.2").string(), other, there});
  CHECK(found.paths ==
        std::vector{std::filesystem::canonical(there).string(), std::filesystem::canonical(other).string()});
}

TEST_CASE("where none is there the folders are named, each once") {
  const Found found = those_there({"/nowhere/libnccl.so.2", "/neither/libnccl.so.2", "/nowhere/libnccl.so.2"});
  CHECK(found.paths.empty());
  CHECK(found.why == "there is no libnccl.so.2 in /nowhere, /neither");
}

TEST_CASE("we are never taken for NCCL") {
  const Folder folder;
  std::filesystem::create_symlink(own_path(), folder.path / "libnccl.so.2");
  CHECK(is_ourselves((folder.path / "libnccl.so.2").string()));
  CHECK(those_there({(folder.path / "libnccl.so.2").string()}).paths.empty());
  std::string why;
  CHECK(open_real((folder.path / "libnccl.so.2").string(), why) == nullptr);
  CHECK(why.find("is Paceline's own library, not NCCL's") != std::string::npos);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("another copy of our library is not taken for NCCL either") {
  std::string why;
  CHECK(open_real(PACELINE_OWN_NCCL, why) == nullptr);
  CHECK(why == std::string(PACELINE_OWN_NCCL) + " is another copy of Paceline's library, not NCCL's");
}
#endif

TEST_CASE("a file that is no library, and a library that is no NCCL, are named") {
  const Folder folder;
  std::string why;
  const std::string text = folder.file("libnccl.so.2");
  CHECK(open_real(text, why) == nullptr);
  CHECK(why.find(text + " does not load: ") == 0);
  CHECK(open_real("libm.so.6", why) == nullptr);
  CHECK(why == "libm.so.6 is no NCCL of version 2.14 or later");
}

TEST_CASE("the variable decides alone") {
  ::setenv("PACELINE_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  const Found found = find_real();
  ::unsetenv("PACELINE_NCCL_LIBRARY");
  CHECK(found.paths.empty());
  CHECK(found.why == "PACELINE_NCCL_LIBRARY=/nowhere/libnccl.so.2: No such file or directory");
}

TEST_CASE("run paths are looked in, before LD_LIBRARY_PATH or after it, as the loader does") {
  for (const bool before : {false, true}) {
    const Folder folder;
    std::filesystem::create_directory(folder.path / "other");
    const std::string theirs = std::filesystem::canonical(folder.file("second/libnccl.so.2")).string();
    const std::string other = std::filesystem::canonical(folder.file("other/libnccl.so.2")).string();
    std::filesystem::copy_file(before ? PACELINE_RPATH : PACELINE_RUNPATH, folder.path / "library.so");
    paceline::testing::Child child([&](const paceline::testing::Child::Say& say) {
      (void)::unsetenv("PACELINE_NCCL_LIBRARY");
      (void)::setenv("LD_LIBRARY_PATH", (folder.path / "other").c_str(), 1);
      const auto say_found = [&] {
        std::string found;
        for (const std::string& path : find_real().paths)
          if (path == theirs || path == other) found += path + " ";
        say(found);
      };
      say_found();
      say(::dlopen((folder.path / "library.so").c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr ? ::dlerror() : "loaded");
      say_found();
    });
    CHECK(child.line() == other + " ");
    CHECK(child.line() == "loaded");
    CHECK(child.line() == (before ? theirs + " " + other + " " : other + " " + theirs + " "));
  }
}

TEST_CASE("versions read as NCCL writes them") {
  CHECK(version_text(22809) == "2.28.9");
  CHECK(version_text(23007) == "2.30.7");
}

TEST_CASE("a program whose own folder cannot be told looks elsewhere") {
  const Folder folder;
  paceline::testing::Child child([&](const paceline::testing::Child::Say& say) {
    std::filesystem::create_directory(folder.path / "here");
    std::filesystem::current_path(folder.path / "here");
    std::filesystem::remove(folder.path / "here");
    (void)::unsetenv("PACELINE_NCCL_LIBRARY");
    program_invocation_name = const_cast<char*>("./relative");
    (void)find_real();
    say("looked");
  });
  CHECK(child.line() == "looked");
}
