// Found before protobuf's header of this name in the preset tsan. Under ThreadSanitizer that header
// gives maps two more members; Debian's libprotobuf.so is built without them, so that reflection
// over a map would read the wrong bytes. Here maps have the library's layout.
#pragma once

#include <string>  // the standard library is configured for ThreadSanitizer before the macro is away

#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include_next <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")
