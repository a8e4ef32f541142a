#include "src/data/corpus.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "src/core/input_file.h"
#include "src/core/rng.h"
#include "src/core/utf8.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

std::string megabytes(size_t bytes) {  // decimal, as for file sizes; few digits
  char text[32];
  if (bytes < 1000)
    std::snprintf(text, sizeof text, "%zu bytes", bytes);
  else if (bytes < 1'000'000)
    std::snprintf(text, sizeof text, "%.1f kB", double(bytes) * 1e-3);
  else
    std::snprintf(text, sizeof text, "%.1f MB", double(bytes) * 1e-6);
  return text;
}

std::string summarize(const std::string& source, const Corpus& corpus) {
  return source + ": " + megabytes(corpus.train().size()) + " to train on, " +
         megabytes(corpus.held_out().size()) + " held out";
}

// The rule of corpus.h: no NUL byte, and at most 10 % of control characters and malformed UTF-8.
bool is_text(std::string_view bytes) {
  size_t strange = 0;
  for (size_t at = 0; at < bytes.size();) {
    const char c = bytes[at];
    if (c == '\0') return false;
    const bool control =
        uint8_t(c) < 0x20 && std::string_view("\t\n\f\r\x1B").find(c) == std::string_view::npos;
    const int length = utf8_length(bytes.substr(at, 4));
    strange += control || length == 0;
    at += size_t(std::max(length, 1));
  }
  return strange * 10 <= bytes.size();
}

struct Document {
  std::string path, bytes;
};

// Reads the files of a folder, or one file, by the rules of corpus.h, and counts the files that it skips.
struct Collector {
  std::deque<Document> documents;  // a deque does not move them, so that views of their bytes stay valid
  size_t total = 0, empty = 0, not_text = 0, copies = 0, links = 0, unreadable = 0, special = 0;
  std::unordered_set<std::string> seen_paths;  // canonical: each file once, however many links lead to it
  std::unordered_set<std::string_view> seen_contents;

  void visit(const fs::path& path) {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    if (error) return void(++unreadable);  // a dangling link, or no permission
    if (!seen_paths.insert(real.string()).second) return;
    if (fs::is_directory(real, error)) return visit_folder(real);
    if (!fs::is_regular_file(real, error)) return void(++special);
    read(path, real);
  }
  void visit_folder(const fs::path& folder) {
    std::error_code error;
    std::vector<fs::path> paths;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
      paths.push_back(it->path());
    if (error) ++unreadable;
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths)
      if (fs::is_symlink(path, error) && fs::is_directory(path, error))
        ++links;  // it may lead anywhere
      else
        visit(path);
  }
  void read(const fs::path& path, const fs::path& real) {
    size_t size = 0;
    std::string bytes;
    try {
      const InputFile file(real.string());
      size = size_t(file.bytes());
      const auto read_up_to = [&](size_t end) {
        const size_t begin = bytes.size();
        bytes.resize(end);
        file.read(int64_t(begin), int64_t(end - begin), &bytes[begin], "text");
      };
      read_up_to(std::min<size_t>(size, 1 << 16));  // enough to recognize large files of data
      if (bytes.find('\0') == std::string::npos && total + size <= size_t(kMaxCorpusBytes)) read_up_to(size);
    } catch (const Error&) {
      return void(++unreadable);
    }
    if (size == 0) return void(++empty);
    if (!is_text(bytes)) return void(++not_text);
    check(bytes.size() == size, "data: with ", path.string(), " the text is over ", kMaxCorpusBytes,
          " bytes, and it is held in memory; choose a smaller folder or cut the file");
    documents.push_back({path.string(), std::move(bytes)});
    if (seen_contents.insert(documents.back().bytes).second) {
      total += size;
    } else {
      documents.pop_back();
      ++copies;
    }
  }
  std::string left_out() const {
    std::ostringstream text;
    auto say = [&, separator = "; left out: "](size_t count, const char* what) mutable {
      if (count == 0) return;
      text << separator << count << " " << what;
      separator = ", ";
    };
    say(empty, "empty");
    say(not_text, "not text");
    say(copies, "exact copies");
    say(links, "links to folders");
    say(unreadable, "unreadable (no permission, or a link to nothing)");
    say(special, "no regular file");
    return text.str();
  }
};

// Chooses the documents to hold out: takes the next one in the list whenever the share taken so far has
// fallen behind. Documents above 10 % of all bytes stay in training; of the smaller ones at most half are
// held out.
std::vector<bool> choose_held_out(const std::deque<Document>& documents, size_t total) {
  const double target = 0.1 * double(total);
  double small_bytes = 0, passed = 0, taken = 0;
  for (const Document& d : documents)
    small_bytes += double(d.bytes.size()) <= target ? double(d.bytes.size()) : 0;
  const double share = std::min(0.5, target / std::max(small_bytes, 1.0));
  std::vector<bool> held_out(documents.size(), false);
  for (size_t i = 0; i < documents.size(); ++i) {
    const double size = double(documents[i].bytes.size());
    if (size > target) continue;
    passed += size;
    held_out[i] = taken + size / 2 <= share * passed;
    taken += held_out[i] ? size : 0;
  }
  if (taken == 0) {  // only large documents: the smallest one
    const auto smaller = [](const Document& a, const Document& b) { return a.bytes.size() < b.bytes.size(); };
    held_out[size_t(std::min_element(documents.begin(), documents.end(), smaller) - documents.begin())] =
        true;
  }
  return held_out;
}

}  // namespace

Corpus generate_corpus(const Grammar& grammar, uint64_t seed, int64_t bytes) {
  check(bytes > 0 && bytes <= kMaxCorpusBytes, "data: ", bytes, " bytes of generated text; it must be 1 to ",
        kMaxCorpusBytes);
  Corpus corpus;
  Rng rng(seed, 0x7E87);
  while (int64_t(corpus.bytes.size()) < bytes) {
    if (int64_t(corpus.bytes.size()) < bytes - bytes / 10) corpus.split = int64_t(corpus.bytes.size());
    corpus.bytes += grammar.generate(rng);
  }
  corpus.summary = summarize("text generated from the grammar", corpus);
  return corpus;
}

Corpus load_corpus(const std::string& path) {
  std::error_code error;
  check(fs::exists(path, error), "data: ", path,
        " cannot be opened: ", error ? error.message() : "there is no such file or folder",
        "; give --data a file or folder of text");
  Collector found;
  found.visit(path);
  check(!found.documents.empty(), "data: ", path, " holds no text", found.left_out(),
        "; give --data a file or folder of text (UTF-8; iconv converts other encodings)");
  Corpus corpus;
  if (found.documents.size() == 1) {
    corpus.bytes = std::move(found.documents[0].bytes);
    corpus.split = int64_t(corpus.bytes.size() - corpus.bytes.size() / 10);
    corpus.summary = summarize(found.documents[0].path, corpus) + " (its end)" + found.left_out();
    return corpus;
  }
  const std::vector<bool> held_out = choose_held_out(found.documents, found.total);
  corpus.bytes.reserve(found.total + found.documents.size());
  for (const bool part : {false, true}) {
    for (size_t i = 0; i < held_out.size(); ++i)
      if (held_out[i] == part) (corpus.bytes += found.documents[i].bytes) += '\0';
    if (!part) corpus.split = int64_t(corpus.bytes.size());
  }
  const auto files = std::to_string(found.documents.size()),
             held = std::to_string(std::count(held_out.begin(), held_out.end(), true));
  corpus.summary =
      summarize(path + ", " + files + " files", corpus) + " (" + held + " files)" + found.left_out();
  return corpus;
}

std::string find_data_file(const std::string& name) {
  std::error_code error;
  for (const fs::path& from :
       {fs::current_path(error), fs::read_symlink("/proc/self/exe", error).parent_path()})
    for (fs::path folder = from; !folder.empty(); folder = folder.parent_path()) {
      if (fs::is_regular_file(folder / "data" / name, error)) return (folder / "data" / name).string();
      if (folder == folder.parent_path()) break;  // the root
    }
  fail("data/", name,
       " was found neither in the current folder nor in the program's, nor in the folders above them; ",
       "run this from the repository");
}

}  // namespace gradus
