"""The peer plane: other instances of Pharos, what they are told and what they tell, and the file that keeps it.

It moves bytes and asks who owns a state to merge them. Forbidden here: merging by itself, and importing another plane.
"""
