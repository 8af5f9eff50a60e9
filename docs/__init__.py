"""The documentation that concerns all folders, and the program that writes its tables from the code."""
