#include "search.h"

#include <dlfcn.h>
#include <errno.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>

#include "base/listed.h"

namespace paceline::nccl {
namespace {

constexpr const char* file_name = "libnccl.so.2";

void split_into(std::vector<std::string>& folders, const char* list) {
  std::istringstream stream(list == nullptr ? "" : list);
  for (std::string folder; std::getline(stream, folder, ':');)
    if (!folder.empty() && folder.front() == '/') folders.push_back(folder);
}

struct Object {
  std::string path;
  // Where the loader looks for what it needs before LD_LIBRARY_PATH (DT_RPATH), or after it (DT_RUNPATH).
  std::vector<std::string> before, after;
};

// `list` with the object's own folder where it says so.
std::string with_origin(std::string list, const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  for (const std::string& origin : {std::string("$ORIGIN"), std::string("${ORIGIN}")})
    for (std::size_t at = 0; (at = list.find(origin, at)) != std::string::npos; at += folder.size())
      list.replace(at, origin.size(), folder);
  return list;
}

template <class Value>
const Value* at(ElfW(Addr) address) {
  return reinterpret_cast<const Value*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// From its dynamic section.
Object object_of(const dl_phdr_info& info, const std::string& path) {
  ElfW(Addr) strings = 0;
  std::vector<ElfW(Addr)> before, after;
  for (const auto& part : std::span(info.dlpi_phdr, info.dlpi_phnum)) {
    if (part.p_type != PT_DYNAMIC) continue;
    for (const auto* entry = at<ElfW(Dyn)>(info.dlpi_addr + part.p_vaddr); entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_STRTAB) strings = entry->d_un.d_ptr;
      if (entry->d_tag == DT_RPATH) before.push_back(entry->d_un.d_val);
      if (entry->d_tag == DT_RUNPATH) after.push_back(entry->d_un.d_val);
    }
  }
  if (strings < info.dlpi_addr) strings += info.dlpi_addr;  // the loader writes no address into a read-only section
  if (!after.empty()) before.clear();                       // as the loader has it
  Object object{path, {}, {}};
  for (const ElfW(Addr) list : before) split_into(object.before, with_origin(at<char>(strings + list), path).c_str());
  for (const ElfW(Addr) list : after) split_into(object.after, with_origin(at<char>(strings + list), path).c_str());
  return object;
}

// The program, which has no name there, and its libraries.
std::vector<Object> loaded_objects() {
  std::vector<Object> objects;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* into) {
        std::error_code failed;
        const std::string name = info->dlpi_name == nullptr ? "" : info->dlpi_name;
        const std::string path = name.empty() ? std::filesystem::read_symlink("/proc/self/exe", failed).string() : name;
        if (path.starts_with('/')) static_cast<std::vector<Object>*>(into)->push_back(object_of(*info, path));
        return 0;
      },
      &objects);
  return objects;
}

// The Python environment that a file lies in: ".../site-packages".
std::string environment_of(const std::string& path) {
  for (const char* folder : {"/site-packages/", "/dist-packages/"}) {
    const std::size_t at = path.find(folder);
    if (at != std::string::npos) return path.substr(0, at + std::string(folder).size() - 1);
  }
  return {};
}

// As far as the folder can be read: a step of the iterator may fail too, and throws in a range-for.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
    entries.push_back(at->path());
  return entries;
}

// What ldconfig reads, as far as it names folders.
std::vector<std::string> configured_folders() {
  std::vector<std::string> folders, files = {"/etc/ld.so.conf"};
  for (const std::filesystem::path& file : entries_of("/etc/ld.so.conf.d")) files.push_back(file.string());
  for (const std::string& file : files) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);)
      if (!line.empty() && line.front() == '/') folders.push_back(line);
  }
  return folders;
}

// The Python environments above a folder `bin`: its ../lib/python3.X/site-packages.
void add_environments(std::vector<std::string>& environments, const std::filesystem::path& bin) {
  std::error_code ignored;
  for (const std::filesystem::path& entry : entries_of(bin.parent_path() / "lib"))
    for (const char* packages : {"site-packages", "dist-packages"})
      if (std::filesystem::is_directory(entry / packages, ignored)) environments.push_back((entry / packages).string());
}

// The folder of the program, as it was called: the interpreter of a virtual environment is a link out of it.
std::filesystem::path program_folder() {
  const std::filesystem::path called = program_invocation_name;
  std::error_code ignored;
  if (called.has_parent_path()) return std::filesystem::absolute(called, ignored).parent_path();  // none: nowhere
  std::vector<std::string> folders;
  split_into(folders, std::getenv("PATH"));
  for (const std::string& folder : folders)
    if (std::filesystem::exists(std::filesystem::path(folder) / called, ignored)) return folder;
  return {};
}

std::vector<std::string> candidates() {
  std::vector<std::string> files;
  const std::vector<Object> loaded = loaded_objects();
  std::vector<std::string> environments, folders, after;
  for (const Object& object : loaded) {
    if (std::filesystem::path(object.path).filename().string().starts_with("libnccl.so")) files.push_back(object.path);
    environments.push_back(environment_of(object.path));
    folders.insert(folders.end(), object.before.begin(), object.before.end());
    after.insert(after.end(), object.after.begin(), object.after.end());
  }
  add_environments(environments, program_folder());
  if (const char* active = std::getenv("VIRTUAL_ENV"); active != nullptr)
    add_environments(environments, std::filesystem::path(active) / "bin");
  for (const std::string& environment : environments)
    if (!environment.empty()) files.push_back(environment + "/nvidia/nccl/lib/" + file_name);
  split_into(folders, std::getenv("LD_LIBRARY_PATH"));
  folders.insert(folders.end(), after.begin(), after.end());
  for (std::string& folder : configured_folders()) folders.push_back(std::move(folder));
  for (const char* folder : {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib",
                             "/usr/local/lib", "/usr/local/cuda/lib64"})
    folders.emplace_back(folder);
  for (const std::string& folder : folders) files.push_back(folder + "/" + file_name);
  return files;
}

bool same_file(const std::string& one, const std::string& other) {
  struct stat a {
  }, b{};
  return ::stat(one.c_str(), &a) == 0 && ::stat(other.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

std::string own_path() {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&own_path), &here) == 0 || here.dli_fname == nullptr) return {};
  std::error_code failed;
  const auto path = std::filesystem::canonical(here.dli_fname, failed);
  return failed ? here.dli_fname : path.string();
}

bool is_ourselves(const std::string& path) { return same_file(path, own_path()); }

Found those_there(const std::vector<std::string>& files) {
  Found found;
  std::vector<std::string> looked;
  const auto add = [](std::vector<std::string>& to, std::string one) {
    if (std::find(to.begin(), to.end(), one) == to.end()) to.push_back(std::move(one));
  };
  for (const std::string& file : files) {
    std::error_code failed;
    const auto path = std::filesystem::canonical(file, failed);
    if (failed)
      add(looked, std::filesystem::path(file).parent_path().string());
    else if (!is_ourselves(path.string()))
      add(found.paths, path.string());
  }
  if (found.paths.empty()) found.why = fmt::format("there is no {} in {}", file_name, listed(looked));
  return found;
}

Found find_real() {
  const char* given = std::getenv("PACELINE_NCCL_LIBRARY");
  if (given == nullptr || *given == '\0') return those_there(candidates());
  std::error_code failed;
  const auto path = std::filesystem::canonical(given, failed);
  if (failed) return {{}, fmt::format("PACELINE_NCCL_LIBRARY={}: {}", given, failed.message())};
  return {{path.string()}, {}};
}

}  // namespace paceline::nccl
