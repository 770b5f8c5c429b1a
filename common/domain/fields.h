// The members of a struct by their names, for what copies them one by one: into messages whose
// fields have the same names (common/codec/message_fields.h), and into rows of a store.
//
//   NS_FIELDS(Point, x, y);
//   ForEachField(point, [](const char* name, double& member) { ... });
#pragma once

#include <tuple>
#include <type_traits>

namespace neuroshard {

// A member and its name.
template <typename T, typename M>
struct NamedMember {
  const char* name;
  M T::*member;
};
template <typename T, typename M>
NamedMember(const char*, M T::*) -> NamedMember<T, M>;

// A tuple of NamedMembers where NS_FIELDS lists those of T.
template <typename T>
inline constexpr int kFields = 0;

// Those that messages have only where they are not at their defaults (NS_SPARSE_FIELDS).
template <typename T>
inline constexpr std::tuple<> kSparseFields = {};

template <typename T>
inline constexpr bool kHasFields = !std::is_same_v<decltype(kFields<T>), const int>;

// visit(name, member) for each member that `members` names, in their order.
template <typename T, typename Members, typename Visit>
void ForEachMember(T& value, const Members& members, Visit visit) {
  std::apply([&](const auto&... of) { (visit(of.name, value.*of.member), ...); }, members);
}
template <typename T, typename Visit>
void ForEachField(T& value, Visit visit) {
  ForEachMember(value, kFields<std::remove_const_t<T>>, visit);
}

// A tuple of NamedMembers, up to 64. A macro may not call itself; NS_MEMBERS_AGAIN is another one
// until it is read again.
#define NS_MEMBERS(type, ...) \
  std::tuple { NS_READ_AGAIN(NS_MEMBERS_FROM(type, __VA_ARGS__)) }
#define NS_FIELDS(type, ...) \
  template <>                \
  inline constexpr auto kFields<type> = NS_MEMBERS(type, __VA_ARGS__)
#define NS_SPARSE_FIELDS(type, ...) \
  template <>                       \
  inline constexpr auto kSparseFields<type> = NS_MEMBERS(type, __VA_ARGS__)
#define NS_MEMBERS_FROM(type, name, ...)   \
  NamedMember<type, decltype(type::name)>{ \
      #name, &type::name} __VA_OPT__(, NS_MEMBERS_AGAIN NS_NO_ARGUMENTS(type, __VA_ARGS__))
#define NS_MEMBERS_AGAIN() NS_MEMBERS_FROM
#define NS_NO_ARGUMENTS ()
#define NS_READ_AGAIN(...) NS_READ_16(NS_READ_16(NS_READ_16(NS_READ_16(__VA_ARGS__))))
#define NS_READ_16(...) NS_READ_4(NS_READ_4(NS_READ_4(NS_READ_4(__VA_ARGS__))))
#define NS_READ_4(...) NS_READ_1(NS_READ_1(NS_READ_1(NS_READ_1(__VA_ARGS__))))
#define NS_READ_1(...) __VA_ARGS__

}  // namespace neuroshard
