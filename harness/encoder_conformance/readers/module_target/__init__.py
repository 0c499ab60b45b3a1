"""The worker of `conform check`: it reads a module on copies of it, and answers for it."""
