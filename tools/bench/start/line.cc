// The program with which W20 is compared.
#include <iostream>

int main() { std::cout << "line\n"; }
