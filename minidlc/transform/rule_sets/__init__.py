"""The rules themselves, one family a file: each rule a line of data.

Reading order: conditions, arithmetic, choices, casts, shapes, pieces, quantised, recognition.
Treated in course chapter 02_frontend_opt.
"""
