"""C++ codelets: unmodified Poplar codelet files, compiled by g++ against our own headers."""

from tremula.codelets.cpp.codelet import CppCodelet, cpp_codelet_from_dict, load_cpp_codelets
from tremula.codelets.cpp.names import vertex_name

__all__ = ["CppCodelet", "cpp_codelet_from_dict", "load_cpp_codelets", "vertex_name"]
