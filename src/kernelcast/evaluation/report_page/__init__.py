"""The page about a campaign and its models: `page` writes it, the other modules say what stands in it.

What is not Python lies beside them: the template, the style, and the scripts that draw, filter and step through points.
"""
