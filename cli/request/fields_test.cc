// cli/request/fields_test.cc: every field of a request in the table keeps its
// value through its flag, a spec file, JSON and a receipt.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "base/files.h"
#include "cli/arguments.h"
#include "cli/request/flags.h"
#include "receipt/receipt.h"
#include "request/spec.h"
#include "tests/temp_folder.h"

namespace tessera::cli {
namespace {

// A value as a user types it, and other forms that a spec may have.
struct Sample {
  std::string text;
  Json spec;
};
Sample sample_of(receipt::FieldForm form) {
  switch (form) {
    case receipt::FieldForm::number:
      return {"12", 12};
    case receipt::FieldForm::text:
      return {"lengths:8", "lengths:8"};
    case receipt::FieldForm::texts:
      return {"causal & full", Json::array({"causal & full"})};
    case receipt::FieldForm::tile:
    case receipt::FieldForm::pair:
      return {"16x32", Json::array({16, 32})};
    case receipt::FieldForm::numbers:
    case receipt::FieldForm::counts:
      return {"3,4", Json::array({3, 4})};
  }
  return {};
}

Result<request::RequestFlags> typed(const std::vector<std::string>& arguments) {
  request::RequestFlags flags;
  Command command{"plan", ""};
  add_request_flags(command, flags);
  auto parsed = parse_arguments({"tessera", "", "", {command}}, arguments);
  if (!parsed) return parsed.error();
  return flags;
}

// Each numeric flag sets a number of the request, and no two set the same one.
TEST(RequestFields, NumbersReachTheRequest) {
  std::set<const int64_t*> places;
  Request any;
  for (const receipt::RequestField& field : receipt::request_fields()) {
    SCOPED_TRACE(field.name);
    ASSERT_EQ(field.number.in != nullptr,
              field.form == receipt::FieldForm::number);
    if (field.number.in == nullptr) continue;
    places.insert(&field.number.in(any));
    const auto resolved = [&](int64_t number) {
      return request::resolve_request(
          *request_text(*typed({"plan", "--mask", "causal",
                                field.name == "q_len" ? "--batch" : "--q-len",
                                "8", field.flag(), std::to_string(number)})));
    };
    for (const int64_t number : {int64_t{1}, field.number.most}) {
      auto request = resolved(number);
      ASSERT_TRUE(request) << request.error().message;
      EXPECT_EQ(field.number.in(*request), number);
    }
    for (const int64_t number : {int64_t{0}, field.number.most + 1}) {
      const auto refused = resolved(number);
      ASSERT_FALSE(refused);
      EXPECT_NE(refused.error().message.find(field.flag() + " must be"),
                std::string::npos)
          << refused.error().message;
    }
  }
  EXPECT_EQ(places.size(), 6U);
}

TEST(RequestFields, EachComesBackFromEverywhere) {
  std::set<std::string> names, flags;
  for (const receipt::RequestField& field : receipt::request_fields()) {
    SCOPED_TRACE(field.name);
    const Sample sample = sample_of(field.form);
    names.emplace(field.name);
    flags.insert(field.flag());

    const auto by_flag = typed({"plan", field.flag(), sample.text});
    ASSERT_TRUE(by_flag.ok()) << by_flag.error().message;
    const auto asked = request_text(*by_flag);
    ASSERT_TRUE(asked.ok());
    EXPECT_EQ(field.texts(*asked), std::vector{sample.text});
    // No other field was set.
    receipt::RequestText none = *asked;
    field.copy(receipt::RequestText(), none);
    EXPECT_EQ(none, receipt::RequestText());

    for (const Json& value : {sample.spec, Json(sample.text)}) {
      if (field.form == receipt::FieldForm::number && value.is_string())
        continue;
      const auto by_spec =
          request::parse_spec(Json{{field.name, value}}.dump());
      ASSERT_TRUE(by_spec.ok()) << by_spec.error().message;
      EXPECT_EQ(*by_spec, *asked);
    }
    EXPECT_EQ(request::parse_spec(Json{{field.name, nullptr}}.dump())
                  .error()
                  .message.substr(0, 7),
              "[spec] ");

    const auto by_json =
        request::parse_spec(receipt::request_json(*asked).dump());
    ASSERT_TRUE(by_json.ok()) << by_json.error().message;
    EXPECT_EQ(*by_json, *asked);

    receipt::Receipt receipt;
    receipt.request = *asked;
    const Json json = Json::parse(receipt::receipt_json(receipt));
    EXPECT_EQ(json["request"].size(), 1u);
    EXPECT_TRUE(json["request"].contains(field.name));
    const auto by_receipt = request::parse_spec(json["request"].dump());
    ASSERT_TRUE(by_receipt.ok()) << by_receipt.error().message;
    EXPECT_EQ(*by_receipt, *asked);
  }
  EXPECT_EQ(names.size(), receipt::request_fields().size());
  EXPECT_EQ(flags.size(), receipt::request_fields().size());
}

// The groups of a command's help, in order, and the group of each flag.
struct HelpGroups {
  std::vector<std::string> order;
  std::map<std::string, std::string> of_flag;
};
HelpGroups groups_of(const std::string& help) {
  HelpGroups out;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] != ' ' && line.back() == ':') {
      out.order.push_back(line.substr(0, line.size() - 1));
    } else if (line.starts_with("  --")) {
      out.of_flag[line.substr(2, line.find(' ', 2) - 2)] = out.order.back();
    }
  }
  return out;
}

TEST(RequestFields, TheHelpHasEachUnderItsGroup) {
  for (const char* target : {static_cast<const char*>(nullptr), "The chip"}) {
    request::RequestFlags flags;
    Command command{"plan", ""};
    add_request_flags(command, flags, target);
    const auto parsed =
        parse_arguments({"tessera", "", "", {command}}, {"plan", "--help"});
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    const HelpGroups groups = groups_of(parsed->text);
    EXPECT_EQ(groups.order, (std::vector<std::string>{
                                kOptionsGroup, receipt::kRequestGroup,
                                receipt::kFactsGroup, receipt::kContractGroup}))
        << parsed->text;
    for (const receipt::RequestField& field : receipt::request_fields()) {
      const bool own = target && field.name == "target";
      EXPECT_EQ(groups.of_flag.at(field.flag()),
                own ? kOptionsGroup : field.group)
          << parsed->text;
    }
  }
}

TEST(RequestFields, AFieldIsGivenOnce) {
  const tessera::testing::TempFolder folder;
  for (const receipt::RequestField& field : receipt::request_fields()) {
    const Sample sample = sample_of(field.form);
    const std::string file = folder.file("spec.json");
    ASSERT_TRUE(write_file(file, Json{{field.name, sample.spec}}.dump()).ok());
    auto flags = typed({"plan", field.flag(), sample.text, "--spec", file});
    ASSERT_TRUE(flags.ok());
    const auto asked = request_text(*flags);
    ASSERT_FALSE(asked.ok());
    EXPECT_EQ(asked.error().message,
              "[cli] " + field.flag() +
                  " is given once, found it as a flag and in the spec");
  }
}

TEST(RequestFields, TheSchemaHasEachOfThem) {
  const Json schema = Json::parse(receipt::request_schema().dump());
  std::set<std::string> names;
  for (const receipt::RequestField& field : receipt::request_fields()) {
    names.emplace(field.name);
    const Json& type = schema["properties"][std::string(field.name)];
    EXPECT_EQ(type["description"], field.help);
  }
  std::set<std::string> found;
  for (const auto& [name, type] : schema["properties"].items()) {
    found.insert(name);
  }
  EXPECT_EQ(found, names);
  EXPECT_EQ(schema["required"],
            Json({"mask", "q_len", "kv_len", "batch", "tile"}));
}

}  // namespace
}  // namespace tessera::cli
