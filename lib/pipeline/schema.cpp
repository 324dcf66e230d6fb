#include "pipeline/pipeline.h"

namespace volpipe {

Json spec_schema() {
  Json stage_schemas = Json::array();
  for (const StageDefinition& definition : stages()) {
    Json properties = {{"op", {{"const", definition.op}}}};
    Json required = Json::array({"op"});
    for (const ParameterInfo& info : definition.parameters) {
      Json value = info.schema;
      value = {{"anyOf", {info.schema, {{"$ref", "#/$defs/distribution"}}, {{"$ref", "#/$defs/variable"}}}}};
      value["description"] = info.help + (info.limits.unit.empty() ? "" : " [" + info.limits.unit + "]");
      if (!info.default_value.is_null()) value["default"] = info.default_value;
      properties[info.name] = value;
      if (info.limits.required) required.push_back(info.name);
    }
    for (const char* key : {"on", "probability", "name", "precision"})
      properties[key] = {{"$ref", std::string("#/$defs/") + key}};
    stage_schemas.push_back({{"title", definition.op},
                             {"description", definition.summary},
                             {"type", "object"},
                             {"properties", properties},
                             {"required", required},
                             {"additionalProperties", false}});
  }
  const Json pair = {{"type", "array"}, {"items", {{"type", "number"}}}, {"minItems", 2}, {"maxItems", 2}};
  const Json name = {{"type", "string"}};
  Json schema = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "volpipe pipeline"}, {"type", "object"}};
  schema["required"] = {"volpipe", "stages"};
  schema["additionalProperties"] = false;
  schema["properties"] = {
      {"volpipe", {{"const", kSpecVersion}}},
      {"description", name},
      {"variables", {{"type", "object"}}},
      {"inputs",
       {{"type", "object"},
        {"additionalProperties",
         {{"type", "object"},
          {"additionalProperties", false},
          {"properties",
           {{"suffix", name}, {"kind", {{"enum", {"image", "label"}}}}, {"optional", {{"type", "boolean"}}}}}}}}},
      {"stages", {{"type", "array"}, {"items", {{"oneOf", stage_schemas}}}}},
      {"outputs",
       {{"type", "object"},
        {"additionalProperties",
         {{"type", "object"},
          {"additionalProperties", false},
          {"properties",
           {{"path", name},
            {"dtype", {{"enum", {"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64"}}}},
            {"compression", {{"type", "integer"}, {"minimum", 1}, {"maximum", 3}}}}}}}}},
      {"fuse", {{"enum", {"auto", "all", "none"}}}},
      {"repeat", {{"type", "integer"}, {"minimum", 1}, {"maximum", 1000000}}}};
  schema["$defs"] = {
      {"variable", {{"type", "string"}, {"pattern", "\\$\\{[^}]*\\}"}}},
      {"on", {{"anyOf", {name, {{"type", "array"}, {"items", name}}}}}},
      {"name", name},
      {"precision", {{"enum", {"single", "double"}}}},
      {"probability",
       {{"anyOf", {{{"type", "number"}, {"minimum", 0}, {"maximum", 1}}, {{"$ref", "#/$defs/distribution"}}}}}},
      {"distribution",
       {{"oneOf",
         {{{"type", "object"},
           {"properties", {{"uniform", pair}}},
           {"required", {"uniform"}},
           {"additionalProperties", false}},
          {{"type", "object"},
           {"properties", {{"normal", pair}}},
           {"required", {"normal"}},
           {"additionalProperties", false}},
          {{"type", "object"},
           {"properties", {{"choice", {{"type", "array"}, {"minItems", 1}}}}},
           {"required", {"choice"}},
           {"additionalProperties", false}}}}}}};
  return schema;
}

}  // namespace volpipe
