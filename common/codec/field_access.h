// Scalar fields of messages of any type, by their descriptors.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

namespace neuroshard {

using google::protobuf::FieldDescriptor;
using google::protobuf::Reflection;
using ProtoMessage = google::protobuf::Message;

// Protobuf's reflection of the fields of one scalar type.
template <typename T>
struct FieldAccess {
  using Type = T;
  T (Reflection::*get)(const ProtoMessage&, const FieldDescriptor*) const;
  T (Reflection::*get_entry)(const ProtoMessage&, const FieldDescriptor*, int) const;
  void (Reflection::*set)(ProtoMessage*, const FieldDescriptor*, T) const;
  void (Reflection::*add)(ProtoMessage*, const FieldDescriptor*, T) const;

  // The field, or entry `entry` of a repeated one.
  T Get(const ProtoMessage& message, const FieldDescriptor* field, int entry) const {
    const Reflection& from = *message.GetReflection();
    return field->is_repeated() ? (from.*get_entry)(message, field, entry)
                                : (from.*get)(message, field);
  }
  // Sets the field, or adds an entry to a repeated one.
  void Put(T value, const FieldDescriptor* field, ProtoMessage& message) const {
    (message.GetReflection()->*(field->is_repeated() ? add : set))(&message, field,
                                                                   std::move(value));
  }
};

// What `visit` gives for the FieldAccess of the field's type. Not for fields of messages; messages of
// this project have no enumerations and no numbers of 32 bits but int32 (table.proto says why).
template <typename Visit>
auto VisitScalar(const FieldDescriptor* field, const Visit& visit) {
  using R = Reflection;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return visit(FieldAccess<std::int32_t>{&R::GetInt32, &R::GetRepeatedInt32, &R::SetInt32,
                                             &R::AddInt32});
    case FieldDescriptor::CPPTYPE_INT64:
      return visit(FieldAccess<std::int64_t>{&R::GetInt64, &R::GetRepeatedInt64, &R::SetInt64,
                                             &R::AddInt64});
    case FieldDescriptor::CPPTYPE_UINT64:
      return visit(FieldAccess<std::uint64_t>{&R::GetUInt64, &R::GetRepeatedUInt64, &R::SetUInt64,
                                              &R::AddUInt64});
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return visit(
          FieldAccess<double>{&R::GetDouble, &R::GetRepeatedDouble, &R::SetDouble, &R::AddDouble});
    case FieldDescriptor::CPPTYPE_BOOL:
      return visit(FieldAccess<bool>{&R::GetBool, &R::GetRepeatedBool, &R::SetBool, &R::AddBool});
    case FieldDescriptor::CPPTYPE_STRING:
      return visit(FieldAccess<std::string>{&R::GetString, &R::GetRepeatedString, &R::SetString,
                                            &R::AddString});
    default:
      std::abort();
  }
}

}  // namespace neuroshard
