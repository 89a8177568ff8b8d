#pragma once
#include <string>

namespace ds {

// Returns the key for which other training programs use the name of the unknown key `path`, such as
// "learning_rate" or, at the top level, "zero"; "" if the name is not known. Only names of keys on
// which the training depends are known, because ignoring them would change it; names of folders and
// reports are not. Names that begin with a punctuation mark, as comments often do, are not known
// either.
std::string usual_key(const std::string& path);

}  // namespace ds
