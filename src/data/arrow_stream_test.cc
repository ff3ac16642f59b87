// Documents from Arrow streams: in every encoding they equal those from JSON
// lines, and an error names the place of the fault.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/fail.h"
#include "data/json_document.h"
#include "tests/arrow_maker.h"

namespace tessera::data {
namespace {

using testing::batch_of;
using testing::integers;
using testing::lists;
using testing::MadeArray;
using testing::MadeStream;
using testing::Number;
using testing::texts;

using Random = std::mt19937_64;
using List = std::optional<std::vector<int64_t>>;
using Pairs = std::optional<std::vector<std::pair<int64_t, int64_t>>>;
using Text = std::optional<std::string>;

template <class T>
const T& one_of(Random& random, const std::vector<T>& all) {
  return all[random() % all.size()];
}

// The values, with others around them that the array's slice leaves out.
template <class T>
std::vector<T> with_more(Random& random, const std::vector<T>& values,
                         int64_t& offset, int64_t& length) {
  length = static_cast<int64_t>(values.size());
  offset = 0;
  if (values.empty() || random() % 2 == 0) return values;
  offset = static_cast<int64_t>(random() % 12);
  std::vector<T> all;
  for (int64_t i = 0; i < offset; ++i) all.push_back(one_of(random, values));
  all.insert(all.end(), values.begin(), values.end());
  all.push_back(one_of(random, values));
  return all;
}

void slice(Random& random, MadeArray& made, int64_t offset, int64_t length) {
  made.offset = offset;
  made.length = length;
  // -1 is unknown: the count covers values outside the slice too.
  if (made.null_count > 0) made.null_count = -1;
  if (random() % 4 == 0) made.null_count = -1;
}

// A dictionary of the values in any order, some of them twice, and the indices.
template <class T, class Make>
MadeArray maybe_dictionary(Random& random, const std::vector<T>& values,
                           const Make& make) {
  if (values.empty() || random() % 3 != 0) return make(values);
  std::vector<T> words = values;
  words.push_back(one_of(random, values));
  std::shuffle(words.begin(), words.end(), random);
  std::vector<Number> numbers;
  for (const T& value : values) {
    const auto at = std::find(words.begin(), words.end(), value);
    numbers.push_back(at - words.begin());
    // A null may also be a null index.
    if (!value && random() % 2 == 0) numbers.back() = std::nullopt;
  }
  int64_t offset = 0, length = 0;
  const auto all = with_more(random, numbers, offset, length);
  MadeArray made = integers(
      one_of<std::string>(random, {"s", "S", "i", "I", "l", "L"}), all);
  slice(random, made, offset, length);
  made.dictionary = std::make_shared<MadeArray>(make(words));
  return made;
}

MadeArray any_integers(Random& random, const std::vector<Number>& values) {
  return maybe_dictionary(random, values, [&](const std::vector<Number>& v) {
    int64_t least = 0, most = 0;
    for (const Number& n : v) {
      least = std::min(least, n.value_or(0));
      most = std::max(most, n.value_or(0));
    }
    std::vector<std::string> formats{"l", "i"};
    if (least >= 0) formats.insert(formats.end(), {"L", "I"});
    if (least >= INT16_MIN && most <= INT16_MAX) formats.push_back("s");
    if (least >= 0 && most <= UINT16_MAX) formats.push_back("S");
    if (least >= INT8_MIN && most <= INT8_MAX) formats.push_back("c");
    if (least >= 0 && most <= UINT8_MAX) formats.push_back("C");
    int64_t offset = 0, length = 0;
    const auto all = with_more(random, v, offset, length);
    MadeArray made = integers(one_of(random, formats), all);
    slice(random, made, offset, length);
    return made;
  });
}

template <class T, class MakeItems>
MadeArray any_lists(Random& random,
                    const std::vector<std::optional<std::vector<T>>>& values,
                    const MakeItems& make_items) {
  using Value = std::optional<std::vector<T>>;
  return maybe_dictionary(random, values, [&](const std::vector<Value>& v) {
    int64_t offset = 0, length = 0;
    const auto all = with_more(random, v, offset, length);
    std::vector<T> items;
    std::vector<int64_t> counts;
    for (const Value& list : all) {
      counts.push_back(list ? static_cast<int64_t>(list->size()) : -1);
      if (list) items.insert(items.end(), list->begin(), list->end());
    }
    MadeArray made = lists(random() % 2 == 0 ? "+l" : "+L", counts,
                           make_items(random, items));
    slice(random, made, offset, length);
    return made;
  });
}

MadeArray any_numbers(Random& random, const std::vector<List>& values) {
  return any_lists(random, values,
                   [](Random& r, const std::vector<int64_t>& items) {
                     return any_integers(r, {items.begin(), items.end()});
                   });
}

MadeArray any_pairs(Random& random, const std::vector<Pairs>& values) {
  using Pair = std::pair<int64_t, int64_t>;
  return any_lists(
      random, values, [](Random& r, const std::vector<Pair>& items) {
        std::vector<Number> flat;
        for (const auto& [from, to] : items) {
          flat.insert(flat.end(), {from, to});
        }
        const std::string format = one_of<std::string>(r, {"+l", "+L", "+w:2"});
        return lists(format, std::vector<int64_t>(items.size(), 2),
                     any_integers(r, flat));
      });
}

MadeArray any_texts(Random& random, const std::vector<Text>& values) {
  return maybe_dictionary(random, values, [&](const std::vector<Text>& v) {
    int64_t offset = 0, length = 0;
    const auto all = with_more(random, v, offset, length);
    MadeArray made = texts(one_of<std::string>(random, {"u", "U", "vu"}), all);
    slice(random, made, offset, length);
    return made;
  });
}

struct Document {
  std::vector<int64_t> ids;
  List loss, depth, starts, ends, kinds;
  Pairs spans, calls;
  Text unit;
};

Document draw_document(Random& random) {
  Document d;
  const int64_t n = random() % 6 == 0 ? 0 : static_cast<int64_t>(random() % 20);
  const int64_t most = one_of<int64_t>(random, {100, 200, 60000, INT32_MAX});
  for (int64_t i = 0; i < n; ++i) {
    d.ids.push_back(static_cast<int64_t>(random()) & INT64_MAX);
    d.ids.back() %= most + 1;
  }
  const auto column = [&](int64_t least, int64_t up) {
    List list;
    if (random() % 2 == 0) return list;
    list.emplace();
    for (int64_t i = 0; i < n; ++i) {
      list->push_back(
          least +
          static_cast<int64_t>(random() % static_cast<uint64_t>(up - least)));
    }
    return list;
  };
  d.loss = column(0, 2);
  d.depth = column(-90, 120);
  const int64_t chunks = n / 4;
  if (chunks == 0 || random() % 3 == 0) return d;
  const bool characters = random() % 2 == 0;
  const int64_t width = characters ? 3 : 1;  // characters of a token
  d.starts.emplace();
  d.ends.emplace();
  for (int64_t c = 0; c < chunks; ++c) {
    d.starts->push_back(4 * c * width);
    d.ends->push_back((4 * c + 3) * width);
  }
  if (random() % 2 == 0) d.kinds = std::vector<int64_t>(d.starts->size(), 3);
  d.calls.emplace();
  for (int64_t c = 1; c < chunks; ++c) d.calls->push_back({c, c - 1});
  if (characters) d.unit = "character";
  if (!characters && random() % 2 == 0) d.unit = "token";
  if (!characters && random() % 2 == 0) return d;
  d.spans.emplace();
  for (int64_t i = 0; i < n; ++i) d.spans->push_back({3 * i, 3 * i + 3});
  return d;
}

std::string json_of(const Document& d) {
  std::string out = fmt::format("{{\"input_ids\": [{}]", fmt::join(d.ids, ","));
  const auto list = [&](const char* name, const List& values) {
    if (!values) return;
    out += fmt::format(", \"{}\": [{}]", name, fmt::join(*values, ","));
  };
  const auto pairs = [&](const char* name, const Pairs& values) {
    if (!values) return;
    std::vector<std::string> words;
    for (const auto& [from, to] : *values) {
      words.push_back(fmt::format("[{},{}]", from, to));
    }
    out += fmt::format(", \"{}\": [{}]", name, fmt::join(words, ","));
  };
  list("loss_mask", d.loss);
  list("ast_depth", d.depth);
  list("chunk_starts", d.starts);
  list("chunk_ends", d.ends);
  list("chunk_kinds", d.kinds);
  pairs("token_spans", d.spans);
  pairs("call_edges", d.calls);
  if (d.unit) out += fmt::format(", \"chunk_unit\": \"{}\"", *d.unit);
  return out + "}";
}

template <class T>
std::vector<T> column_of(std::span<const Document> documents,
                         T Document::*field) {
  std::vector<T> out;
  for (const Document& d : documents) out.push_back(d.*field);
  return out;
}

MadeArray made_batch(Random& random, std::span<const Document> documents) {
  std::vector<List> ids;
  for (const Document& d : documents) ids.emplace_back(d.ids);
  std::vector<std::pair<std::string, MadeArray>> columns;
  const auto add = [&](const char* name, MadeArray made) {
    columns.emplace_back(name, std::move(made));
  };
  add("name", texts("u", std::vector<Text>(documents.size(), "x")));
  add("input_ids", any_numbers(random, ids));
  add("loss_mask", any_numbers(random, column_of(documents, &Document::loss)));
  add("ast_depth", any_numbers(random, column_of(documents, &Document::depth)));
  add("chunk_starts",
      any_numbers(random, column_of(documents, &Document::starts)));
  add("chunk_ends", any_numbers(random, column_of(documents, &Document::ends)));
  add("chunk_kinds",
      any_numbers(random, column_of(documents, &Document::kinds)));
  add("token_spans", any_pairs(random, column_of(documents, &Document::spans)));
  add("call_edges", any_pairs(random, column_of(documents, &Document::calls)));
  add("chunk_unit", any_texts(random, column_of(documents, &Document::unit)));
  return batch_of(std::move(columns));
}

// The rows [first, first + n) of a batch as a slice of it.
MadeArray sliced(MadeArray batch, int64_t first, int64_t n) {
  batch.offset = first;
  batch.length = n;
  return batch;
}

// All batches have the schema's types, so all are slices of one batch with all
// documents; or there is one batch only.
MadeStream draw_stream(Random& random, std::span<const Document> documents) {
  MadeStream made;
  const MadeArray all = made_batch(random, documents);
  made.schema = all;
  const auto n = static_cast<int64_t>(documents.size());
  for (int64_t at = 0; at < n;) {
    const int64_t take = std::min<int64_t>(
        n - at, random() % 5 == 0 ? 0 : 1 + static_cast<int64_t>(random() % 9));
    made.batches.push_back(sliced(all, at, take));
    at += take;
  }
  return made;
}

void expect_same(const Documents& a, const Documents& b) {
  EXPECT_EQ(a.token_start, b.token_start);
  EXPECT_EQ(a.input_ids, b.input_ids);
  EXPECT_EQ(a.loss_mask, b.loss_mask);
  EXPECT_EQ(a.structure, b.structure);
  EXPECT_EQ(a.chunk_start, b.chunk_start);
  EXPECT_EQ(a.chunk_starts, b.chunk_starts);
  EXPECT_EQ(a.chunk_ends, b.chunk_ends);
  EXPECT_EQ(a.chunk_kinds, b.chunk_kinds);
  EXPECT_EQ(a.edge_start, b.edge_start);
  EXPECT_EQ(a.edges, b.edges);
}

Documents read_all(DocumentSource& source) {
  Documents documents;
  while (true) {
    const auto more = source.read(documents);
    EXPECT_TRUE(more) << more.error().message;
    if (!more || !*more) return documents;
  }
}

TEST(ArrowStreams, AnyEncodingGivesTheSameDocuments) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::vector<Document> documents(1 + random() % 30);
    Documents expected;
    std::set<std::string> ignored;
    for (Document& d : documents) {
      d = draw_document(random);
      const auto added =
          add_json_document(json_of(d), "a line", expected, ignored);
      ASSERT_TRUE(added) << added.error().message;
    }
    ArrowArrayStream stream =
        testing::stream_of(draw_stream(random, documents));
    auto arrow = open_arrow_stream(&stream);
    ASSERT_TRUE(arrow) << arrow.error().message;
    EXPECT_EQ(stream.release, nullptr);
    expect_same(read_all(**arrow), expected);
    EXPECT_EQ((*arrow)->ignored(), (std::set<std::string>{"name"}));
    arrow = invalid("test", "released");
    EXPECT_EQ(testing::handed_over(), 0);
    if (HasFailure()) return;
  }
}

std::unique_ptr<DocumentSource> opened(const MadeStream& made) {
  ArrowArrayStream stream = testing::stream_of(made);
  auto source = open_arrow_stream(&stream);
  EXPECT_TRUE(source) << source.error().message;
  return std::move(*source);
}

TEST(ArrowStreams, ResumedAnywhereTheyGiveTheSameRows) {
  Random random(7);
  std::vector<Document> documents(60);
  for (Document& d : documents) d = draw_document(random);
  const MadeStream made = draw_stream(random, documents);
  StreamOptions options;
  options.pack.tokens = 24;
  options.pack.window_rows = 3;
  auto whole = RowStream::open(opened(made), options);
  ASSERT_TRUE(whole) << whole.error().message;
  std::vector<Rows> rows;
  std::vector<StreamPosition> positions;
  do {
    positions.push_back(whole->position());
    rows.push_back(*whole->next(2));
  } while (rows.back().rows > 0);
  ASSERT_GT(rows.size(), 8u);
  for (size_t at = 0; at < positions.size(); ++at) {
    auto again = RowStream::open(opened(made), options, positions[at]);
    ASSERT_TRUE(again) << again.error().message;
    for (size_t r = at; r < rows.size(); ++r) {
      ASSERT_EQ(*again->next(2), rows[r]) << at << " " << r;
    }
  }
  auto source = opened(made);
  Documents some;
  ASSERT_TRUE(source->read(some));
  EXPECT_FALSE(source->seek({0, 0, 0}));
  EXPECT_FALSE(source->seek({0, 61, 0}));
}

// Two batches: documents of 2 and 1 tokens, and one of 3; no edges.
MadeStream two_batches(const std::string& format = "i") {
  MadeStream made;
  made.batches = {
      batch_of({{"input_ids", lists("+l", {2, 1}, integers(format, {1, 2, 3}))},
                {"call_edges",
                 lists("+l", {0, -1}, lists("+w:2", {}, integers("i", {})))}}),
      batch_of({{"input_ids", lists("+l", {3}, integers(format, {4, 5, 6}))},
                {"call_edges",
                 lists("+l", {0}, lists("+w:2", {}, integers("i", {})))}})};
  made.schema = made.batches[0];
  return made;
}

std::string said(const MadeStream& made) {
  const int64_t before = testing::handed_over();
  std::string text;
  {
    ArrowArrayStream stream = testing::stream_of(made);
    auto source = open_arrow_stream(&stream);
    if (!source) {
      text = source.error().message;
    } else {
      Documents documents;
      Result<bool> more = true;
      while (more && *more) more = (*source)->read(documents);
      if (!more) text = more.error().message;
    }
  }
  EXPECT_EQ(testing::handed_over(), before) << text;
  return text;
}

std::string after(const std::function<void(MadeStream&)>& change,
                  const std::string& format = "i") {
  MadeStream made = two_batches(format);
  change(made);
  return said(made);
}

TEST(ArrowStreamErrors, ValuesAreNamedByBatchColumnAndRow) {
  EXPECT_EQ(after([](MadeStream&) {}), "");
  const auto with = [](MadeArray column) {
    return after([&](MadeStream& m) { m.batches[1].children[0] = column; });
  };
  const std::string place = "of input_ids of row 0 of batch 1 of the stream";
  const std::string must = " must be an integer of 0 to 2147483647, found ";
  EXPECT_EQ(with(lists("+l", {3}, integers("i", {4, std::nullopt, 6}))),
            "[data] element 1 " + place + must + "null for it");
  EXPECT_EQ(with(lists("+l", {3}, integers("i", {4, 5, -1}))),
            "[data] element 2 " + place + must + "the integer -1 for it");
  EXPECT_EQ(with(lists("+l", {-1}, integers("i", {}))),
            "[data] a document must have the column input_ids, found none for "
            "row 0 of batch 1 of the stream");
  EXPECT_EQ(
      after(
          [](MadeStream& m) {
            m.batches[1].children[0] = lists("+l", {2}, integers("L", {1, -1}));
          },
          "L"),
      "[data] element 1 " + place + must +
          "the integer 18446744073709551615 for it");
  EXPECT_EQ(
      after(
          [](MadeStream& m) {
            m.batches[1].children[0] =
                lists("+l", {1}, integers("l", {int64_t{1} << 32}));
          },
          "l"),
      "[data] element 0 " + place + must + "the integer 4294967296 for it");
  const auto edges = [](MadeArray column) {
    return after([&](MadeStream& m) {
      column.name = "call_edges";
      m.schema.children[1] = column;
      m.batches[0].children[1] = column;
      m.batches.pop_back();
    });
  };
  EXPECT_EQ(
      edges(lists("+l", {0, 1}, lists("+l", {3}, integers("i", {0, 1, 2})))),
      "[data] call_edges must be a list of pairs, found a list of 3 for "
      "element 0 of row 1 of batch 0 of the stream");
  EXPECT_EQ(edges(lists("+l", {0, 1}, lists("+l", {-1}, integers("i", {})))),
            "[data] call_edges must be a list of pairs, found null for element "
            "0 of row 1 of batch 0 of the stream");
  EXPECT_EQ(
      edges(lists("+l", {1, 0}, lists("+w:2", {2}, integers("i", {0, 9})))),
      "[data] call_edges must join the document's 0 chunks, found 0 for "
      "element 0 of row 0 of batch 0 of the stream");
}

TEST(ArrowStreamErrors, TypesAreRefusedBeforeAnyBatch) {
  const auto with = [](const std::string& name, MadeArray column) {
    return after([&](MadeStream& m) {
      column.name = name;
      m.schema.children.push_back(column);
      m.batches.clear();
    });
  };
  EXPECT_EQ(with("ast_depth", integers("i", {1})),
            "[data] column ast_depth must hold lists of integers, found "
            "Arrow's format 'i' for the stream");
  EXPECT_EQ(with("ast_depth", lists("+l", {1}, texts("g", {}))),
            "[data] column ast_depth must hold lists of integers, found "
            "Arrow's format '+l' of 'g' for the stream");
  EXPECT_EQ(with("ast_depth", lists("+l", {1}, integers("b", {1}))),
            "[data] column ast_depth must hold lists of integers, found "
            "Arrow's format '+l' of 'b' for the stream");
  EXPECT_EQ(with("loss_mask", lists("+l", {1}, integers("b", {1}))), "");
  EXPECT_EQ(with("type_edges", lists("+l", {1}, integers("i", {1}))),
            "[data] column type_edges must hold lists of pairs, found Arrow's "
            "format '+l' of 'i' for the stream");
  EXPECT_EQ(with("chunk_unit", integers("i", {1})),
            "[data] column chunk_unit must hold texts, found Arrow's format "
            "'i' for the stream");
  EXPECT_EQ(with("input_ids", lists("+l", {1}, integers("i", {1}))),
            "[data] a column must be there once, found it twice for input_ids "
            "of the stream");
  EXPECT_EQ(after([](MadeStream& m) { m.schema.children.clear(); }),
            "[data] documents must have the column input_ids, found none for "
            "the stream");
  EXPECT_EQ(after([](MadeStream& m) { m.schema.format = "+l"; }),
            "[data] an Arrow stream must give batches of columns, found the "
            "format '+l' for the stream");
  // Any number of such rows would take no bytes.
  EXPECT_EQ(with("ast_depth", lists("+w:0", {}, integers("i", {}))),
            "[data] column ast_depth must hold lists of integers, found "
            "Arrow's format '+w:0' of 'i' for the stream");
  EXPECT_NE(with("ast_depth", lists("+w:-1", {}, integers("i", {}))), "");
  EXPECT_NE(with("ast_depth", lists("+w:99999999999", {}, integers("i", {}))),
            "");
  MadeArray deep = integers("i", {});
  for (int i = 0; i < 100; ++i) deep = lists("+l", {}, deep);
  EXPECT_NE(with("ast_depth", deep), "");
}

TEST(ArrowStreamErrors, ABrokenProducerIsNamed) {
  EXPECT_EQ(after([](MadeStream& m) { m.fails_at = 1; }),
            "[data] an Arrow stream must give batch 1, found error 5 ('the "
            "disk is gone') for the stream");
  EXPECT_EQ(after([](MadeStream& m) { m.schema_fails = true; }),
            "[data] an Arrow stream must give its schema, found error 12 "
            "('the disk is gone') for the stream");
  const auto spoiled = [](std::function<void(ArrowArray&)> spoil) {
    return after([&](MadeStream& m) { m.spoil_batch = std::move(spoil); });
  };
  const std::pair<std::function<void(ArrowArray&)>, const char*> cases[] = {
      {[](ArrowArray& a) { a.length = -1; },
       "[data] an array's length must be 0 to 281474976710656, found -1 for "
       "batch 0 of the stream"},
      {[](ArrowArray& a) { a.offset = INT64_MAX; },
       "[data] an array's offset must be 0 to 281474976710656, found "
       "9223372036854775807 for batch 0 of the stream"},
      {[](ArrowArray& a) { a.length = 3; },
       "[data] a column must be as long as its batch, 3, found 2 for column 0 "
       "of batch 0 of the stream"},
      {[](ArrowArray& a) { a.n_children = 1; },
       "[data] an array must have 2 children, found 1 for batch 0 of the "
       "stream"},
      {[](ArrowArray& a) { a.n_buffers = 0; },
       "[data] an array must have 1 buffers, found 0 for batch 0 of the "
       "stream"},
      {[](ArrowArray& a) { a.children[0]->null_count = 3; },
       "[data] an array's nulls must be -1 to its length 2, found 3 for column "
       "input_ids of batch 0 of the stream"},
      {[](ArrowArray& a) { a.children[0]->null_count = 1; },
       "[data] an array with nulls must say which, found no such buffer for "
       "column input_ids of batch 0 of the stream"},
      {[](ArrowArray& a) { a.children[0]->buffers[1] = nullptr; },
       "[data] an array must have its buffer 1, found none for column "
       "input_ids of batch 0 of the stream"},
      {[](ArrowArray& a) { a.children[0]->children[0]->n_buffers = 1; },
       "[data] an array must have 2 buffers, found 1 for the values of column "
       "input_ids of batch 0 of the stream"},
      {[](ArrowArray& a) { a.children[0]->children[0]->length = 2; },
       "[data] offsets must be at most 2, found 3 for row 1 of column "
       "input_ids of batch 0 of the stream"},
      {[](ArrowArray& a) { a.children[0]->dictionary = a.children[1]; },
       "[data] an array must have a dictionary where its schema has one, found "
       "one for column input_ids of batch 0 of the stream"},
  };
  for (const auto& [spoil, says] : cases) EXPECT_EQ(spoiled(spoil), says);
  const auto offsets = [](std::vector<int32_t> values) {
    return after([&](MadeStream& m) {
      std::string bytes;
      for (const int32_t v : values) testing::append(bytes, v);
      m.batches[0].children[0].buffers[1] = bytes;
    });
  };
  EXPECT_EQ(offsets({0, 2, 1}),
            "[data] offsets must not fall, found 1 after 2 for row 2 of column "
            "input_ids of batch 0 of the stream");
  EXPECT_EQ(offsets({-1, 2, 3}),
            "[data] offsets must not fall, found -1 after 0 for row 0 of "
            "column input_ids of batch 0 of the stream");
  EXPECT_EQ(offsets({0, 2, 4}),
            "[data] offsets must be at most 3, found 4 for row 1 of column "
            "input_ids of batch 0 of the stream");
  MadeArray words = integers("c", {1, 2});
  words.dictionary =
      std::make_shared<MadeArray>(lists("+l", {1, 1}, integers("i", {1, 2})));
  MadeStream made;
  made.batches = {batch_of({{"input_ids", words}})};
  made.schema = made.batches[0];
  EXPECT_EQ(said(made),
            "[data] an index must be within its dictionary of 2 values, found "
            "2 for input_ids of row 1 of batch 0 of the stream");
  ArrowArrayStream none = {};
  EXPECT_FALSE(open_arrow_stream(&none));
  EXPECT_FALSE(open_arrow_stream(nullptr));
  ArrowArrayStream empty = testing::stream_of({});
  empty.get_schema = nullptr;
  EXPECT_FALSE(open_arrow_stream(&empty));
  EXPECT_EQ(testing::handed_over(), 0);
}

}  // namespace
}  // namespace tessera::data
