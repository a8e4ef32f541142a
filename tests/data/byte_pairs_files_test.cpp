// Files of byte pairs: written files are read back, Hugging Face's are read, and everything else is rejected.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/core/input_file.h"
#include "src/core/json.h"
#include "tests/data/byte_pairs_testing.h"
#include "tests/folder_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

const char* const kGolden = "tests/golden/tokens";  // made by tests/golden/make_tokens.py

struct L14_BytePairFiles : FolderTest {
  // Tokens of all bytes, some of them malformed UTF-8; and tokens that no merge makes, in the middle and at
  // the end.
  static BytePairs sample() {
    const BytePairs learned =
        byte_pairs_of({{" ", "\xC3"}, {"\xFF", "\n"}, {" \xC3", "\xA9"}, {"a", "b"}, {"ab", "ab"}});
    std::vector<std::string> tokens = learned.tokens();
    std::vector<BytePairs::Pair> merges = learned.merges();
    std::swap(tokens[258], tokens[3]);
    for (auto& [left, right] : merges)
      for (int32_t* const id : {&left, &right}) *id = *id == 258 ? 3 : *id == 3 ? 258 : *id;
    tokens.push_back("<|endoftext|>");
    return BytePairs(tokens, merges);
  }
  void write_two(const std::string& merges, const std::string& vocabulary) const {
    write("merges.txt", merges), write("vocab.json", vocabulary);
  }
  BytePairs load() const { return load_byte_pairs(path()); }
  void refused_tokenizer(const std::string& part, const std::string& text) const {
    write("tokenizer.json", text);
    expect_refused(path("tokenizer.json") + ": ", [&] { load(); });
    expect_refused(part, [&] { load(); });
  }
  // The sample's tokenizer.json after a change.
  template <class Change>
  void refused_after(const std::string& part, const Change& change) const {
    ParsedJson file = ParsedJson::parse(tokenizer_text(sample()));
    change(file, file["model"]);
    refused_tokenizer(part, file.dump());
  }
  template <class Change>
  void refused_vocabulary(const std::string& part, const Change& change) const {
    ParsedJson file = ParsedJson::parse(vocabulary_text(sample()));
    change(file);
    write_two(merges_text(sample()), file.dump());
    expect_refused(path(), [&] { load(); });
    expect_refused("vocab.json: " + part, [&] { load(); });
  }
  void refused_merges(const std::string& part, const std::string& merges) const {
    write_two(merges, vocabulary_text(sample()));
    expect_refused(path("merges.txt"), [&] { load(); });
    expect_refused(part, [&] { load(); });
  }
};

TEST_F(L14_BytePairFiles, WhatIsWrittenAsTokenizerJsonIsReadBack) {
  write("tokenizer.json", tokenizer_text(sample()));
  expect_same(load(), sample());
}

TEST_F(L14_BytePairFiles, WhatIsWrittenAsTwoFilesIsReadBack) {
  write_two(merges_text(sample()), vocabulary_text(sample()));
  expect_same(load(), sample());
}

TEST_F(L14_BytePairFiles, OfAllThreeFilesTokenizerJsonIsRead) {
  write_two("other", "other");
  write("tokenizer.json", tokenizer_text(sample()));
  expect_same(load(), sample());
}

TEST_F(L14_BytePairFiles, TheTextOfTheTwoFiles) {
  const BytePairs pairs = byte_pairs_of({{" ", "\n"}, {"a", "\xAD"}});
  EXPECT_EQ(merges_text(pairs), "#version: 0.2\n\u0120 \u010A\na \u0143\n");
  EXPECT_EQ(vocabulary_text(pairs).substr(0, 22), R"({"!":0,"\"":1,"#":2,"$)");
  EXPECT_NE(vocabulary_text(pairs).find("\"\u0120\u010A\":256,\"a\u0143\":257}"), std::string::npos);
}

TEST_F(L14_BytePairFiles, MergesWithAndWithoutAVersionAndOneThatBeginsLikeIt) {
  const BytePairs pairs = byte_pairs_of({{"#", "v"}, {"a", "b"}});
  write_two("# v\na b\n", vocabulary_text(pairs));
  expect_same(load(), pairs);
  write_two("#version: 0.2\n", vocabulary_text(byte_pairs_of({})));
  expect_same(load(), byte_pairs_of({}));
}

TEST_F(L14_BytePairFiles, OnlyTheFirstLineSaysAVersion) {
  std::vector<std::pair<std::string, std::string>> merges;
  std::string before = "#";
  for (const char c : std::string("version:")) merges.emplace_back(before, std::string(1, c)), before += c;
  const BytePairs pairs = byte_pairs_of(merges);
  write_two(merges_text(pairs), vocabulary_text(pairs));
  expect_same(load(), pairs);
}

TEST_F(L14_BytePairFiles, MergesAsPairs) {
  ParsedJson file = ParsedJson::parse(tokenizer_text(sample()));
  for (ParsedJson& merge : file["model"]["merges"]) {
    const std::string text = merge;
    merge = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
  }
  write("tokenizer.json", file.dump());
  expect_same(load(), sample());
}

TEST_F(L14_BytePairFiles, AddedTokensAreTheirOwnText) {
  ParsedJson file = ParsedJson::parse(tokenizer_text(sample()));
  const int64_t n = sample().vocabulary();
  file["model"]["vocab"]["<a \u00E9>"] = n;
  for (const auto& [text, id] : {std::pair("<a \u00E9>", n), {"<|endoftext|>", n - 1}, {"\u0120new", n + 1}})
    file["added_tokens"].push_back({{"id", id}, {"content", text}, {"special", true}});
  write("tokenizer.json", file.dump());
  const BytePairs loaded = load();
  std::vector<std::string> tokens = sample().tokens();
  tokens.insert(tokens.end(), {"<a \u00E9>", "\u0120new"});
  EXPECT_EQ(loaded.tokens(), tokens);
  Ids ids = BytePairEncoder(loaded).encode("<|endoftext|><a \u00E9>\u0120new");
  EXPECT_LT(*std::max_element(ids.begin(), ids.end()), n - 1);
}

TEST_F(L14_BytePairFiles, HuggingFacesTokenizersAndTiktokenGiveTheSameIds) {
  const BytePairs pairs = load_byte_pairs(kGolden);
  EXPECT_EQ(pairs.tokens()[0], "<|endoftext|>");
  Ids expected;
  std::ifstream file(std::string(kGolden) + "/ids.txt");
  for (int32_t id = 0; file >> id;) expected.push_back(id);
  ASSERT_GT(expected.size(), 1000u);
  const std::string text = read_text_file(std::string(kGolden) + "/text.txt");
  EXPECT_EQ(BytePairEncoder(pairs).encode(text), expected);
  EXPECT_EQ(pairs.decode(expected), text);
}

// Its special token comes first, so its ids are larger by one.
TEST_F(L14_BytePairFiles, HuggingFacesTrainerLearnsTheSameMerges) {
  const BytePairs trained = load_byte_pairs(kGolden);
  const std::string text = read_text_file(std::string(kGolden) + "/text.txt");
  // A merge that left parts behind would double its tokens 600 times.
  ASSERT_EQ(BytePairs::learn(text, 10).tokens().back(), trained.tokens()[1 + 256 + 9]);
  const BytePairs learned = BytePairs::learn(text, 600);
  ASSERT_GT(trained.merges().size(), 300u);
  EXPECT_EQ(learned.tokens(), std::vector(trained.tokens().begin() + 1, trained.tokens().end()));
  std::vector<BytePairs::Pair> shifted = learned.merges();
  for (auto& [left, right] : shifted) ++left, ++right;
  EXPECT_EQ(trained.merges(), shifted);
}

TEST_F(L14_BytePairFiles, WhatTokenizerJsonAsksForBeyondIsRefusedByItsName) {
  const ParsedJson some{{"type", "X"}};
  for (const char* const field :
       {"normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding", "new"})
    refused_after(std::string(field) + " is {\"type\":\"X\"}", [&](auto& f, auto&) { f[field] = some; });
  refused_after("pre_tokenizer is null", [](auto& f, auto&) { f.erase("pre_tokenizer"); });
  refused_after("pre_tokenizer is {\"pretokenizers\":[{", [](auto& f, auto&) {
    f["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Split"}}, f["pre_tokenizer"]}}};
  });
  refused_after("add_prefix_space", [](auto& f, auto&) { f["pre_tokenizer"]["add_prefix_space"] = true; });
  refused_after("add_prefix_space", [](auto& f, auto&) { f["pre_tokenizer"].erase("add_prefix_space"); });
  refused_after("use_regex", [](auto& f, auto&) { f["pre_tokenizer"]["use_regex"] = false; });
  refused_after("model.type is \"WordPiece\"", [](auto&, auto& m) { m["type"] = "WordPiece"; });
  for (const char* const field : {"byte_fallback", "ignore_merges", "fuse_unk"})
    refused_after(std::string("model.") + field + " is true", [&](auto&, auto& m) { m[field] = true; });
  for (const char* const field : {"unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
    refused_after(std::string("model.") + field + " is \"x\"", [&](auto&, auto& m) { m[field] = "x"; });
  refused_after("model.dropout is 0.1", [](auto&, auto& m) { m["dropout"] = 0.1; });
}

TEST_F(L14_BytePairFiles, WhatIsOffIsAccepted) {
  ParsedJson file = ParsedJson::parse(tokenizer_text(sample()));
  file["model"].update(
      {{"unk_token", ""}, {"dropout", 0.0}, {"byte_fallback", false}, {"end_of_word_suffix", ""}});
  for (const char* const field : {"version", "decoder", "added_tokens", "normalizer"}) file.erase(field);
  file["model"].erase("type");
  file["post_processor"] = file["pre_tokenizer"];
  write("tokenizer.json", file.dump());
  expect_same(load(), sample());
}

TEST_F(L14_BytePairFiles, TokenizerJsonOfOtherShapesIsRefused) {
  refused_after("'model' not found", [](auto& f, auto&) { f.erase("model"); });
  refused_after("'vocab' not found", [](auto&, auto& m) { m.erase("vocab"); });
  refused_after("'merges' not found", [](auto&, auto& m) { m.erase("merges"); });
  refused_after("cannot use value() with number", [](auto& f, auto&) { f["model"] = 5; });
  refused_after("model.vocab must be an object", [](auto&, auto& m) { m["vocab"] = {0, 1, 2}; });
  refused_after("model.merges and added_tokens arrays", [](auto&, auto& m) { m["merges"] = "a b"; });
  refused_after("model.merges and added_tokens arrays", [](auto& f, auto&) { f["added_tokens"] = "a"; });
  refused_after("cannot use at() with number", [](auto& f, auto&) { f["added_tokens"] = {5}; });
  refused_after("'content' not found", [](auto& f, auto&) { f["added_tokens"] = {{{"id", 0}}}; });
  refused_after("which is not special", [](auto& f, auto&) { f["added_tokens"] = {{{"special", false}}}; });
  refused_after("has ids 261 and 5", [](auto& f, auto&) {
    f["added_tokens"] = {{{"id", 5}, {"content", "<|endoftext|>"}}};
  });
  for (const ParsedJson& merge :
       {ParsedJson({"a"}), ParsedJson({"a", "b", "c"}), ParsedJson(5), ParsedJson()})
    refused_after("is neither", [&](auto&, auto& m) { m["merges"].push_back(merge); });
  refused_after("must be string", [](auto&, auto& m) { m["merges"].push_back({"a", 5}); });
  refused_after("is not two tokens", [](auto&, auto& m) { m["merges"].push_back("a b c"); });
  refused_tokenizer("line 2, column 2", "{\n !}");
  refused_tokenizer("two fields are called \"a\"", R"({"model":{"vocab":{"a":0,"a":1}}})");
  refused_tokenizer("not an object", "[]");
}

TEST_F(L14_BytePairFiles, IdsAreZeroToTheLast) {
  refused_vocabulary("the token \"<new>\" has id 262; the ids of 262 tokens are 0 to 261", [](auto& v) {
    v.erase("<|endoftext|>");
    v["<new>"] = 262;
  });
  refused_vocabulary("two tokens have id 7", [](auto& v) { v["<new>"] = 7; });
  for (const int64_t id : {int64_t(-1), INT64_MIN, int64_t(INT32_MAX), int64_t(1) << 31, INT64_MAX})
    refused_vocabulary("the token \"<new>\" has id " + std::to_string(id) + "; ids are 0 to 2^31 - 2",
                       [&](auto& v) { v["<new>"] = id; });
  for (const ParsedJson& id : {ParsedJson(1.5), ParsedJson(1e300), ParsedJson("7"), ParsedJson()})
    refused_vocabulary("expected a whole number, found ", [&](auto& v) { v["<new>"] = id; });
}

TEST_F(L14_BytePairFiles, NamesOfTokensAreOfCharactersThatNameBytes) {
  for (const char* const name : {"<\u20AC>", "< >", "<\u0144>", "<\u00AD>", "<\n>", "<\U0001F600>"})
    refused_vocabulary("the token ", [&](auto& v) { v[name] = 262; });
  refused_vocabulary("the token \"<\u20AC>\" has a character that names no byte",
                     [&](auto& v) { v["<\u20AC>"] = 262; });
  refused_vocabulary("a token has no name", [&](auto& v) { v[""] = 262; });
}

TEST_F(L14_BytePairFiles, AllBytesAreTokens) {
  refused_vocabulary("byte pairs: byte 36 is not a token", [](auto& v) {
    v["<$>"] = v["$"];
    v.erase("$");
  });
}

TEST_F(L14_BytePairFiles, OtherVocabulariesAreRefused) {
  for (const char* const text : {"[]", "{", "{\"a\":0,}", "{\"a\":{}}", "{\"a\":0,\"a\":1}", "{} {}"}) {
    write_two(merges_text(sample()), text);
    expect_refused("vocab.json: ", [&] { load(); });
  }
}

TEST_F(L14_BytePairFiles, MergesThatDoNotFitTheVocabularyAreRefused) {
  const std::string good = merges_text(sample());
  refused_merges("merge 5 repeats an earlier merge", good + "a b\n");
  refused_merges("a merge has or makes \"xyz\", which is not in the vocabulary", good + "a xyz\n");
  refused_merges("a merge has or makes \"ac\", which is not in the vocabulary", good + "a c\n");
  refused_merges("merge 0 is of token 259, which is not a byte and which no earlier merge makes",
                 "ab ab\na b\n" + good.substr(good.find('\n') + 1, good.rfind("a b") - good.find('\n') - 1));
  refused_merges("\"a\" is not two tokens with a space between them", good + "a\n");
  refused_merges("\"\" is not two tokens", good + "\n");
  refused_merges("\"a b c\" is not two tokens", good + "a b c\n");
  refused_merges("which is not in the vocabulary", good + "a b\r\n");
  refused_merges("which is not in the vocabulary", good + "a \n");
  refused_merges("which is not in the vocabulary", good + "\xFF \xC3\n");
  refused_merges("its last line has no end", good + "a b");
}

// Only its name distinguishes a special token from a token whose merge is missing.
TEST_F(L14_BytePairFiles, AMergesFileThatIsCutIsRefusedWhereverThatIs) {
  const std::string good = merges_text(sample());
  for (size_t n = 0; n < good.size(); ++n) {
    write_two(good.substr(0, n), vocabulary_text(sample()));
    EXPECT_NE(refusal([&] { load(); }).find("merges.txt"), std::string::npos) << n << " bytes";
  }
  refused_merges("no merge makes the token \"abab\", which is not <...>; was merges.txt cut?",
                 good.substr(0, good.rfind("ab ab")));
  for (const char* const name : {"<ab", "ab>"})
    refused_vocabulary("no merge makes the token ", [&](auto& v) { v[name] = v.size(); });
}

TEST_F(L14_BytePairFiles, JsonThatIsCutIsRefusedWhereverThatIs) {
  const std::string vocabulary = vocabulary_text(sample()), tokenizer = tokenizer_text(sample());
  for (size_t n = 0; n < vocabulary.size(); ++n) {
    write_two(merges_text(sample()), vocabulary.substr(0, n));
    ASSERT_NE(refusal([&] { load(); }).find("vocab.json"), std::string::npos) << n << " bytes";
  }
  for (size_t n = 0; n < tokenizer.size(); ++n) {
    write("tokenizer.json", tokenizer.substr(0, n));
    ASSERT_NE(refusal([&] { load(); }).find("tokenizer.json"), std::string::npos) << n << " bytes";
  }
}

TEST_F(L14_BytePairFiles, FilesThatAreMissingEmptyOrTooLargeAreNamed) {
  expect_refused(path("merges.txt") + " cannot be opened", [&] { load(); });
  write("merges.txt", merges_text(sample()));
  expect_refused(path("vocab.json") + " cannot be opened", [&] { load(); });
  write("vocab.json", "");
  expect_refused(path("vocab.json") + " is empty", [&] { load(); });
  fs::resize_file(path("vocab.json"), (64 << 20) + 1);
  expect_refused(path("vocab.json") + " has 67108865 bytes; at most 67108864 are allowed", [&] { load(); });
  write("tokenizer.json", "");
  expect_refused(path("tokenizer.json") + " is empty", [&] { load(); });
  fs::remove(path("tokenizer.json"));
  fs::create_directory(path("tokenizer.json"));
  expect_refused(path("tokenizer.json") + " is no regular file", [&] { load(); });
}

}  // namespace
}  // namespace gradus
